"""``make cluster-demo``: a campaign and a contact sync on a cluster; one worker is killed in the middle.

python -m tests.system.cluster --recipients 100000 --contacts 20000 --kill-after 20
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.sandbox import SandboxError
from tests.system.cluster.moments import TEN, WAITING, Moment
from tests.system.cluster.rounds import Size, rounds
from tests.system.cluster.servers import POSTGRES, REDIS, MissingServerError, own_servers
from tests.system.standalone import StandaloneError

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def tell(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def _interrupted(*_: object) -> None:
    """End everything; what is bounded, and must happen, is not to be interrupted once more."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    tell("Ending all that was started ...")
    raise KeyboardInterrupt


def main() -> int:
    """Run the rounds, print the verdict, and return 1 where something is not as it must be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.cluster", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--recipients", type=int, default=Size.recipients, help="of the campaign (%(default)s)")
    parser.add_argument("--contacts", type=int, default=Size.contacts, help="rows of the sync's source (%(default)s)")
    parser.add_argument(
        "--kill-after",
        type=float,
        nargs="+",
        default=[35.0],
        metavar="PERCENT",
        help="of the messages, after which the worker is killed; 0: as its first task runs,\n"
        "100: while delivery is awaited; several are several rounds (35)",
    )
    parser.add_argument(
        "--journal",
        choices=("task_state", "database"),
        default="task_state",
        help="where the journals are (%(default)s)",
    )
    parser.add_argument("--ten", action="store_true", help="ten rounds, with ten different moments")
    parser.add_argument("--postgres", default=POSTGRES, help="a database whose user may create others (%(default)s)")
    parser.add_argument("--redis", default=REDIS, help="the server (%(default)s)")
    parser.add_argument("--home", type=Path, help="folder to keep all of it in; by default a temporary one")
    given = parser.parse_args()
    moments = TEN if given.ten else [Moment(percent / 100, bool(n % 2)) for n, percent in enumerate(given.kill_after)]
    if not all(0 <= moment.after <= WAITING for moment in moments):
        parser.error("--kill-after takes percentages from 0 to 100")
    # A script that starts it in the background has it ignore Ctrl-C.
    for number in SIGNALS:
        signal.signal(number, _interrupted)
    found = 0
    try:
        with (
            tempfile.TemporaryDirectory(prefix="cpaas-cluster-") as temporary,
            own_servers(given.postgres, given.redis) as servers,
            rounds(
                servers,
                given.home or Path(temporary),
                Size(given.recipients, given.contacts),
                tell,
                journal=given.journal,
            ) as holding,
        ):
            for moment in moments:
                held = holding.round(moment)
                tell(f"{held}")
                for violation in held.violations():
                    tell(f"  VIOLATED: {violation}")
                found += len(held.violations())
    except KeyboardInterrupt:
        tell("Interrupted. All that was started has ended.")
        return INTERRUPTED
    except MissingServerError as error:
        tell(f"The cluster cannot run here: {error}.")
        return 1
    except (StandaloneError, SandboxError) as error:
        tell(str(error))
        return 1
    verdict = "nothing twice, nothing lost, reports complete, list equal to the source" if not found else "FAILED"
    tell(f"Verdict of {len(moments)} rounds: {verdict}; {found} violations.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
