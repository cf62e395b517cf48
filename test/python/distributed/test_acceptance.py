"""The acceptance checks of distributed training, and the tests and benches that are each of them. A name that does not exist fails."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HERE = "test/python/distributed"
# By number: the check, and where it is, as file::name. The name is a function, a C test or a row of the file.
CHECKS = {
    1: ("spellings of init_process_group", [f"{HERE}/test_distributed.py::test_spellings_of_the_backend", f"{HERE}/spellings.py::main"]),
    2: ("collectives by type, size and layout", [f"{HERE}/test_distributed.py::test_collectives", f"{HERE}/collectives.py::check_copies",
                                                 f"{HERE}/test_distributed.py::test_collectives_of_more_ranks_and_other_modes"]),
    3: ("the same bits", [f"{HERE}/collectives.py::check_same_bits", "test/hal/comm/comm_shm_arithmetic.c::Test"]),
    4: ("reductions", [f"{HERE}/collectives.py::check_reductions", f"{HERE}/collectives.py::check_scaled_sums", f"{HERE}/collectives.py::check_refusals"]),
    5: ("uneven all_to_all", [f"{HERE}/collectives.py::check_uneven"]),
    6: ("crossed messages, pipelines", [f"{HERE}/test_distributed.py::test_crossed_messages_take_at_most_twice_the_time_of_one_direction", f"{HERE}/programs.py::pipeline_1f1b",
                                        f"{HERE}/programs.py::pipeline_interleaved", f"{HERE}/programs.py::pipeline_zero_bubble"]),
    7: ("ways of training", [f"{HERE}/test_distributed.py::test_parallel_training_compared_with_the_cpu", f"{HERE}/test_programs.py::test_programs_of_two_ranks",
                             f"{HERE}/test_programs.py::test_programs_of_four_ranks", f"{HERE}/programs.py::context_parallel"]),
    8: ("no copy through the host, no wait of it", [f"{HERE}/test_device_memory.py::test_device_memory_does_not_pass_through_the_host",
                                                    "test/hal/comm/comm_device_copy.c::Test", "test/hal/comm/comm_device_failure.c::Test", f"{HERE}/plugin_library.py::check_waits", f"{HERE}/order.py::check_enqueue", f"{HERE}/order.py::check_profile"]),
    9: ("races", [f"{HERE}/test_distributed.py::test_no_collective_reads_memory_before_it_is_ready",
                  f"{HERE}/test_distributed.py::test_waits_that_a_plugin_ignores_are_found"]),
    10: ("peak memory", [f"{HERE}/programs.py::sharded_memory", f"{HERE}/test_comm_command.py::test_dry_run_counts_what_the_real_run_does"]),
    11: ("failures", [f"{HERE}/test_distributed.py::test_calls_that_do_not_match_are_errors_on_every_rank",
                      f"{HERE}/test_distributed.py::test_a_rank_that_does_not_come_is_named", f"{HERE}/test_distributed.py::test_a_rank_that_ends_is_named_at_once",
                      f"{HERE}/test_distributed.py::test_an_error_in_a_hook_of_one_rank_ends_the_others", f"{HERE}/test_faults.py::test_each_call_that_fails_is_an_error_or_does_no_harm"]),
    12: ("timeouts", [f"{HERE}/order.py::check_timeouts", f"{HERE}/order.py::check_other_timeouts", f"{HERE}/test_distributed.py::test_a_split_has_its_own_timeout"]),
    13: ("abort", [f"{HERE}/test_distributed.py::test_abort_ends_all_ranks", f"{HERE}/order.py::check_abort", "test/hal/comm/comm_shm_failure.c::Test"]),
    14: ("groups of some ranks", [f"{HERE}/test_distributed.py::test_groups_of_some_ranks", f"{HERE}/groups.py::check_many", f"{HERE}/groups.py::check_shrink"]),
    15: ("restarts", [f"{HERE}/test_elastic.py::test_twenty_killed_ranks_are_restarted"]),
    16: ("checkpoints", [f"{HERE}/test_programs.py::test_a_checkpoint_is_loaded_by_another_number_of_ranks",
                         f"{HERE}/test_programs.py::test_a_rank_that_is_killed_while_saving_leaves_the_previous_checkpoint", f"{HERE}/programs.py::save_while_training"]),
    17: ("speed", ["test/bench/comm.py::main", "test/bench/comm_latency.c::main", "test/bench/comm_shm.c::main"]),
    18: ("two hosts", [f"{HERE}/test_hosts.py::test_training_has_equal_bits_on_all_ranks_and_the_numbers_of_the_cpu",
                       f"{HERE}/test_hosts.py::test_ways_of_training", f"{HERE}/test_hosts.py::test_a_step_sends_the_gradients_between_hosts_once",
                       f"{HERE}/test_hosts.py::test_a_cut_connection_ends_all_ranks_within_the_timeout"]),
    19: ("1,024 ranks", [f"{HERE}/test_comm_command.py::test_dry_run_of_a_thousand_ranks_takes_seconds", f"{HERE}/test_comm_command.py::test_the_model_is_near_the_times_of_two_to_eight_ranks"]),
    20: ("sharing tensors", ["test/python/device/test_tensor_sharing.py::test_all_scenarios_in_all_modes",
                             "test/python/device/test_tensor_sharing.py::test_ten_thousand_sends_leak_nothing",
                             "test/python/device/test_multiprocessing.py::test_what_a_worker_cannot_send_is_an_error_of_the_loop"]),
    21: ("NCCL", [f"{HERE}/test_plugin_library.py::test_programs", "test/hal/cuda/cuda_comm.c::Test", "test/doubles/cuda_mock/check_nccl_library.py::main"]),
    22: ("graphs", [f"{HERE}/test_distributed.py::test_graphs_hold_collectives"]),
    23: ("profiles and logs", [f"{HERE}/order.py::check_profile", f"{HERE}/test_hosts.py::test_communication_runs_while_the_backward_pass_computes",
                              f"{HERE}/test_distributed.py::test_the_log_names_the_collectives_that_differ"]),
    24: ("accelerate, Trainer, Lightning", ["test/python/integrations/test_torchtitan.py::test_torchtitans_losses_are_those_of_the_cpu_with_gloo",
                                            "test/python/integrations/test_two_ranks.py::test_losses_are_those_of_the_cpu_with_gloo",
                                            "test/python/integrations/test_two_ranks.py::test_accelerate_test_passes_with_two_processes",
                                            "test/python/integrations/test_two_ranks.py::test_accelerate_launch_starts_a_program_that_trains_as_on_the_cpu"]),
    25: ("sanitizers and exits", [f"{HERE}/test_endings.py::test_processes_end", "Makefile::test-sanitizers"]),
    26: ("conformance", ["hal/cts/suite/comm_reduce.c::static", "test/cts/run_broken.py::main"]),
    27: ("PyTorch's own tests", ["test/upstream/run.py::main", "test/upstream/test_upstream_distributed.py::Distributed"]),
}  # fmt: skip


def test_every_check_is_in_the_table():
    assert list(CHECKS) == list(range(1, 28))


@pytest.mark.parametrize("number", CHECKS)
def test_the_tests_of_a_check_exist(number):
    _, places = CHECKS[number]
    for place in places:
        file, _, name = place.partition("::")
        text = (ROOT / file).read_text()
        assert re.search(rf"^(?:async )?(?:def|class) {name}\b|^{name}\(|^(?:static )?int {name}\(|^{name}:|^#?define {name}\b|^{name}\b", text, re.M), place
