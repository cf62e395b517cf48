"""PyTorch's DistributedTest on the device, each test with WORLD_SIZE processes."""

import functools
import os

from adapter import DEVICE, distributed_test  # first: it chooses the device

import preload
from torch.testing._internal.common_utils import run_tests


class Distributed(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(functools.partial(self._process, preload.context(DEVICE)))

    @classmethod
    def _process(cls, context, target, name, args, kwargs):
        """Returns the process of a rank: `target` is _run of this class."""
        return context.Process(target=preload.run, name=name, args=(dict(os.environ), cls.__module__, cls.__name__, *args), kwargs=kwargs)


for name, case in list(vars(distributed_test).items()):
    if name.startswith("TestBucketCapacityConfig"):  # without processes
        globals()[name] = case

if __name__ == "__main__":
    run_tests()
