"""Ways of parallel training, compared with the same program on the CPU with Gloo, or with one process. programs.py has them."""

import launch
import pytest

INLINE = {"HAL_FAKE_ASYNC": "0"}
TRAINING = (
    "data_parallel", "unused_parameters", "compiled", "half_precision_hook", "bfloat16_hook", "zero", "first_sharded", "sharded", "sharded_offloaded",
    "context_parallel", "pipeline_1f1b", "pipeline_interleaved", "pipeline_zero_bubble",
)  # fmt: skip
OTHERS = ("functional_compiled", "attention", "sharded_memory", "objects", "meshes", "save_and_load", "save_while_training", "threads")
OF_FOUR = ("sharded_hybrid", "first_sharded_hybrid", "context_parallel", "attention", "meshes", "objects", "zero", "pipeline_1f1b", "pipeline_interleaved", "pipeline_zero_bubble")


def test_common_programs():
    launch.run("programs.py", 2, ("unused_parameters", "zero", "first_sharded", "pipeline_1f1b", "objects", "save_and_load"))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, INLINE, {"TORCH_BACKEND_COLLECTIVES": "gloo"}, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}], ids=str)
@pytest.mark.parametrize("names", [TRAINING, OTHERS], ids=["training", "others"])
def test_programs_of_two_ranks(names, settings):
    launch.run("programs.py", 2, names, {"HAL_FAKE_DEVICES": "2", **settings})


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, INLINE], ids=str)
def test_programs_of_four_ranks(settings):
    launch.run("programs.py", 4, OF_FOUR, {"HAL_FAKE_DEVICES": "4", **settings})


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_a_checkpoint_is_loaded_by_another_number_of_ranks(ranks, tmp_path):
    settings = {"CHECKPOINT": str(tmp_path)}
    launch.run("programs.py", 2, ("save_and_load",), settings)
    launch.run("programs.py", ranks, ("load_of_other_ranks",), settings)


@pytest.mark.slow
def test_a_rank_that_is_killed_while_saving_leaves_the_previous_checkpoint(tmp_path):
    codes, written = launch.finish(launch.start("programs.py", 2, ("killed_while_saving",), {"CHECKPOINT": str(tmp_path)}))
    assert codes == [0, -9] and "failed:" in written[0], (codes, written[0][-2000:])
    launch.run("programs.py", 2, ("load_of_other_ranks",), {"CHECKPOINT": str(tmp_path / "1")})
