"""Checks that no lock of the HAL can remain locked in the child of a fork. A lock is an hal_lock_t, which is free there
(hal/src/base/lock.h), or a mutex of the list below, with its reason. hal/src/base/life.h states the rule, and
test/hal/device/fork_locks.c tests it with forks."""
import re

MUTEX = re.compile(r"\bpthread_(?:mutex|cond|rwlock|spin|barrier)\w*_t\s+\w+\s*(?:=|;)|\bsem_t\s+\w+\s*;|\bmtx_t\b")
RENEWED = "hal_life_hooks.after_fork initializes it again"
REFUSED = "its functions read the number of the process first, and take no lock in a child"
NOT_TAKEN = "held only while a plugin is in use; the child of such a process has no device that could take it"
POSTED = "a signal handler posts it, which never waits; the only thread that waits is started again in a child that needs it"

FILES = {
    "hal/src/fusion/worker.c": RENEWED,
    "hal/src/lazy/idle.c": RENEWED,
    "hal/src/plugin/layer_borrow.c": RENEWED,
    "hal/src/plugin/layer_live.h": RENEWED,
    "hal/src/comm/comm.h": NOT_TAKEN,
    "hal/src/comm/communicator.c": NOT_TAKEN,
    "hal/src/comm/log_signal.c": POSTED,
    "hal/src/comm/vendor/watch.c": NOT_TAKEN,
    "hal/src/comm/hierarchy/watch.c": REFUSED,
    "hal/src/comm/hierarchy/watch.h": REFUSED,
    "hal/src/op/pack.c": NOT_TAKEN,
    "hal/src/op/provider.h": NOT_TAKEN,
    "hal/src/op/table.h": NOT_TAKEN,
    "hal/ops/gemm/amx.c": NOT_TAKEN,
}


def check(sources):
    """`sources`: the code of files without comments, by their paths."""
    found = {name for name, code in sources.items() if name.startswith(("hal/src/", "hal/ops/")) and MUTEX.search(code)}
    for name in sorted(found - set(FILES)):
        yield (f"{name} has a mutex, which stays locked in the child of a fork; use hal_lock_t (hal/src/base/lock.h), or renew it in "
               "hal_life_hooks.after_fork and list it in test/components/fork_locks.py")
    for name in sorted(set(FILES) & set(sources) - found):
        yield f"{name} has no mutex: remove it from test/components/fork_locks.py"
