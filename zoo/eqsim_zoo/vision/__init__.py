"""Agents that see images: encoders and augmentations.

`images.py` has `Images`, which agents take as `inputs`; `layers.py` convolution and normalization;
`encoders.py` pooling and the encoders `SmallCNN` and `Impala`; `resnet.py` residual networks;
`augmentations.py` filters, colors and random changes of images. The package imports `blocks` only.
"""

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
from .images import (
    AbstractAugmentation as AbstractAugmentation,
    AbstractEncoder as AbstractEncoder,
    augment as augment,
    Images as Images,
)
from .layers import Conv as Conv, GroupNorm as GroupNorm, max_pool as max_pool
from .resnet import (
    AbstractResNet as AbstractResNet,
    ResNet18 as ResNet18,
    ResNet34 as ResNet34,
    ResNet50 as ResNet50,
)
