"""A driver whose process forks in a checkpoint: `python -m tests.integration.forking_driver OPTIONS`.

A fork in the process of the tests would close the connections of Spark's other threads.
"""

import json
import os
import sys

from sluicegate.writer_hooks import HookError, RegionDriver
from tests.integration.test_python_driver import rows


def main() -> None:
    with RegionDriver(json.loads(sys.argv[1])) as driver:
        checkpoint = driver.begin()
        result = checkpoint.write("w0", rows(1))
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                driver.stop()
                driver.complete(checkpoint, [], source_offsets=0)
            except HookError as error:
                print(error, flush=True)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        driver.complete(checkpoint, [result], source_offsets=1)
        driver.await_commit(checkpoint)


if __name__ == "__main__":
    main()
