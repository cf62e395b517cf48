/* Tests of the collectives that copy over several hosts (comm_copies.h). */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "comm_copies.h"
#include "comm_hosts_testing.h"

static copies_t copies = {create_hosts};

Test(comm_hosts_exchange, on_one_and_one) { run_hosts("01", every_copy, &copies); }
Test(comm_hosts_exchange, on_two_and_two) { run_hosts("0011", every_copy, &copies); }
Test(comm_hosts_exchange, on_three_and_one) { run_hosts("0001", every_copy, &copies); }
Test(comm_hosts_exchange, on_two_and_one_and_one) { run_hosts("0012", every_copy, &copies); }
Test(comm_hosts_exchange, of_ranks_that_alternate) { run_hosts("0101", every_copy, &copies); }
Test(comm_hosts_exchange, on_three_and_two) { run_hosts("01010", every_copy, &copies); }
