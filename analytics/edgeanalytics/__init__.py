"""What became of every message: Spark over the broker's delivery logs (`.edl`), as tables and as one HTML page.

`edgebroker.log_schema` lists the columns, `ingest` turns files into DataFrames, every file of `measures` defines one
figure, `reference` computes the same figures in plain Python, `report` draws them.
"""
