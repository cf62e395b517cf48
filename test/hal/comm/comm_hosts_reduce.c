/* Tests of the reductions over several hosts (comm_reductions.h). */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_hosts_testing.h"
#include "comm_reductions.h"

static reductions_t reductions = {create_hosts, 0, "is not supported"};

Test(comm_hosts_reduce, on_one_and_one) { run_hosts("01", every_reduction, &reductions); }
Test(comm_hosts_reduce, on_two_and_two) { run_hosts("0011", every_reduction, &reductions); }
Test(comm_hosts_reduce, on_three_and_one) { run_hosts("0001", every_reduction, &reductions); }
Test(comm_hosts_reduce, on_two_and_one_and_one) { run_hosts("0012", every_reduction, &reductions); }
Test(comm_hosts_reduce, of_ranks_that_alternate) { run_hosts("0101", every_reduction, &reductions); }
Test(comm_hosts_reduce, on_three_and_two) { run_hosts("01010", every_reduction, &reductions); }
