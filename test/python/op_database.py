"""`op_db`, torch's operator database, whose samples cost no search for a unittest.TestCase.

Each call of `sample_inputs` looks twice for the running test case, to show its sample if it fails. It calls inspect.stack(), which reads the
source file of each frame and takes ten times as long as the samples. Our tests are functions, and scripts are no tests, so there is nothing
to find.
"""

from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core

__all__ = ["op_db"]

for module in (common_utils, core):
    assert callable(module.extract_test_fn)  # torch calls it by this name in both
    module.extract_test_fn = lambda: None
