"""The names that people import today, over the trees of this package.

Each module has the classes of one ecosystem, with their conventions at boundaries, their indexing
and their exceptions. What is a fault there is right here; docs/compat.md lists every difference. To
try one, change the import and nothing else:

=============  ======================================================================
here           theirs
=============  ======================================================================
``baselines``  ``baselines.common.segment_tree``, ``ray.rllib.execution.segment_tree``,
               ``stable_baselines.common.segment_tree``, ``ding.utils``
``tianshou``   ``tianshou.data``
``torchrl``    ``torchrl.data.replay_buffers.samplers``, ``torchrl._torchrl``
``cpprb``      ``cpprb``
=============  ======================================================================

They need NumPy alone; PyTorch's tensors are taken where PyTorch is imported already.
"""

from . import baselines, cpprb, tianshou, torchrl

__all__ = ["baselines", "cpprb", "tianshou", "torchrl"]
