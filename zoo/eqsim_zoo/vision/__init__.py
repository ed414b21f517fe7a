"""Networks that see, and random changes of what they see."""

from ._augment import (
    AbstractAugmentation as AbstractAugmentation,
    augment as augment,
    ColorJitter as ColorJitter,
    RandomCrop as RandomCrop,
    RandomFlip as RandomFlip,
)
from ._color import (
    adjust_brightness as adjust_brightness,
    adjust_contrast as adjust_contrast,
    adjust_hue as adjust_hue,
    adjust_saturation as adjust_saturation,
)
from ._encoders import AbstractEncoder as AbstractEncoder, SmallCNN as SmallCNN
from ._impala import Impala as Impala
from ._layers import Conv as Conv, GroupNorm as GroupNorm, max_pool as max_pool
from ._observations import (
    check_image_settings as check_image_settings,
    encoded_size as encoded_size,
    EncodedNetwork as EncodedNetwork,
    Encoders as Encoders,
    init_observation_statistics as init_observation_statistics,
    is_image as is_image,
    normalize_observations as normalize_observations,
    observation_statistics as observation_statistics,
)
from ._pools import (
    AbstractPool as AbstractPool,
    Flatten as Flatten,
    Mean as Mean,
    SpatialSoftmax as SpatialSoftmax,
)
from ._resnet import ResNet18 as ResNet18
