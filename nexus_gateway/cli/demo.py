import typer
app = typer.Typer()
@app.command("demo")
def demo(): ...
