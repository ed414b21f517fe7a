"""Networks that see, and random changes of what they see."""

from ..blocks.observations import (
    init_observation_statistics as init_observation_statistics,
    observation_statistics as observation_statistics,
)
from .augmentations import (
    adjust_brightness as adjust_brightness,
    adjust_contrast as adjust_contrast,
    adjust_hue as adjust_hue,
    adjust_saturation as adjust_saturation,
    ColorJitter as ColorJitter,
    gaussian_blur as gaussian_blur,
    RandomBlur as RandomBlur,
    RandomCrop as RandomCrop,
    RandomFlip as RandomFlip,
    RandomSolarize as RandomSolarize,
    solarize as solarize,
)
from .encoders import (
    AbstractPool as AbstractPool,
    Flatten as Flatten,
    Impala as Impala,
    Mean as Mean,
    SmallCNN as SmallCNN,
    SpatialEmbeddings as SpatialEmbeddings,
    SpatialSoftmax as SpatialSoftmax,
)
from .encoding import (
    AbstractAugmentation as AbstractAugmentation,
    AbstractEncoder as AbstractEncoder,
    AbstractEncodingAgent as AbstractEncodingAgent,
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
from .layers import Conv as Conv, GroupNorm as GroupNorm, max_pool as max_pool
from .resnet import (
    AbstractResNet as AbstractResNet,
    ResNet18 as ResNet18,
    ResNet34 as ResNet34,
    ResNet50 as ResNet50,
)
