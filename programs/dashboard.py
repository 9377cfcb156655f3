"""Show a run in a browser, and change its settings while it trains: python -m programs dashboard RUN"""

import socket
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import UserError
from common.runs.command_line import one_line_errors, parse_settings
from common.settings import Settings, setting
from programs import run_state


@dataclass(frozen=True)
class Arguments(Settings):
    """Serve a page with the curves of a run and, of a PPO run, sliders of the settings that may change."""

    run: Path = field(kw_only=True, metadata={"example": "runs/NAME"})
    """Run folder, like runs/NAME."""
    port: int | None = setting(None, at_least=1, at_most=65535)
    """Port of the page, which only this machine can open. By default one that is free."""


def main() -> None:
    """Serve the page until Ctrl-C."""
    with one_line_errors():
        arguments = parse_settings(Arguments, prog="python -m programs dashboard")
        run_state.read_settings(arguments.run)
        try:
            listener = socket.create_server(("127.0.0.1", arguments.port or 0))
        except OSError:
            raise UserError(f"port {arguments.port} is taken or needs more rights: choose another --port") from None
        try:
            from programs import run_page
        except ModuleNotFoundError:
            raise UserError("NiceGUI is not installed: run 'pip install -r requirements/dashboard.txt'") from None
        print(f"{arguments.run} is shown on http://127.0.0.1:{listener.getsockname()[1]} until Ctrl-C", flush=True)
        run_page.serve(arguments.run, listener)


if __name__ == "__main__":
    main()
