"""Calls that hang are counted, and delay no other call."""

import threading

from sluicegate.lakes.threads import CommitThreads


def test_a_call_that_hangs_is_counted_and_another_one_runs_in_its_place() -> None:
    threads = CommitThreads(1, patience=0.0)  # time: a call counts as stuck at once
    started, release = threading.Event(), threading.Event()

    def hang() -> str:
        started.set()
        release.wait()
        return "late"

    assert (threads.stuck(), threads.longest()) == (0, 0.0)
    hanging = threads.submit(hang)
    started.wait()
    assert threads.stuck() == 1
    before = threads.longest()
    assert threads.submit(lambda: "at once").result() == "at once"
    assert threads.longest() > before > 0
    release.set()
    assert hanging.result() == "late"
    threads.shutdown()
