"""Networks that see, and random changes of what they see."""

from ..blocks._encoding import (
    AbstractAugmentation as AbstractAugmentation,
    AbstractEncoder as AbstractEncoder,
    augment as augment,
    check_image_settings as check_image_settings,
    encoded_network as encoded_network,
    encoded_size as encoded_size,
    EncodedNetwork as EncodedNetwork,
    Encoders as Encoders,
    Eyes as Eyes,
    eyes as eyes,
    is_image as is_image,
    Through as Through,
)
from ..blocks._encoding_agent import AbstractEncodingAgent as AbstractEncodingAgent
from ..blocks._statistics import (
    init_observation_statistics as init_observation_statistics,
    observation_statistics as observation_statistics,
)
from ._augment import (
    ColorJitter as ColorJitter,
    RandomBlur as RandomBlur,
    RandomCrop as RandomCrop,
    RandomFlip as RandomFlip,
    RandomSolarize as RandomSolarize,
)
from ._color import (
    adjust_brightness as adjust_brightness,
    adjust_contrast as adjust_contrast,
    adjust_hue as adjust_hue,
    adjust_saturation as adjust_saturation,
)
from ._encoders import SmallCNN as SmallCNN
from ._filters import gaussian_blur as gaussian_blur, solarize as solarize
from ._impala import Impala as Impala
from ._layers import Conv as Conv, GroupNorm as GroupNorm, max_pool as max_pool
from ._pools import (
    AbstractPool as AbstractPool,
    Flatten as Flatten,
    Mean as Mean,
    SpatialEmbeddings as SpatialEmbeddings,
    SpatialSoftmax as SpatialSoftmax,
)
from ._resnet import (
    AbstractResNet as AbstractResNet,
    ResNet18 as ResNet18,
    ResNet34 as ResNet34,
    ResNet50 as ResNet50,
)
