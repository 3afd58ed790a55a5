import click

from .ledger import Ledger


@click.group()
def main():
    pass


@main.command()
@click.argument("journal")
@click.option("--depth", default=3)
def balance(journal, depth):
    click.echo(Ledger().balance(journal))
