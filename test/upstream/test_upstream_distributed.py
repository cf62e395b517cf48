"""PyTorch's DistributedTest on the device, each test with WORLD_SIZE processes."""

import functools
import os

from adapter import DEVICE, distributed_test  # first: it chooses the device

import preload
from torch.testing._internal.common_utils import run_tests
from upstream_common_distributed import TEST_SKIPS


class Distributed(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(functools.partial(self._process, preload.context(DEVICE)))

    def _check_return_codes(self, fn, elapsed_time):
        """Fails if a rank has crashed. torch's own check reads the exit code of rank 0 alone."""
        known = {None, 0, self.TEST_ERROR_EXIT_CODE, *(skip.exit_code for skip in TEST_SKIPS.values())}
        crashed = {rank: process.exitcode for rank, process in enumerate(self.processes) if process.exitcode not in known}
        if crashed and fn not in self.skip_return_code_checks and fn not in self.special_return_code_checks:
            raise RuntimeError(f"ranks ended with other exit codes than those of a test: {crashed}")
        super()._check_return_codes(fn, elapsed_time)

    @classmethod
    def _process(cls, context, target, name, args, kwargs):
        """Returns the process of a rank: `target` is _run of this class."""
        return context.Process(target=preload.run, name=name, args=(dict(os.environ), cls.__module__, cls.__name__, *args), kwargs=kwargs)


for name, case in list(vars(distributed_test).items()):
    if name.startswith("TestBucketCapacityConfig"):  # without processes
        globals()[name] = case

if __name__ == "__main__":
    run_tests()
