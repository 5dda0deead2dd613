"""Reports about delivery logs (`.edl` files): Spark computes the figures, which are shown as JSON and as one HTML page.

`edgebroker.log_schema` lists the columns, `ingest` turns files into DataFrames, every file of `measures` defines one
figure, `report` draws them.
"""
