"""Ask Spark for the functions of a dataset by self and by total time, and compare with a report as JSON.

spark.py DATASET REPORT; run by scripts/test-long, since Spark is half a gigabyte and slow to start.
"""

import collections
import json
import sys

from pyspark.sql import SparkSession

folder, report = sys.argv[1], json.load(open(sys.argv[2]))
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", False)
    .config("spark.sql.shuffle.partitions", 2)
    .config("spark.driver.host", "localhost")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
for name in "recordings events runs modules samples stacks frames symbols".split():
    table = spark.read.parquet(f"{folder}/{name}")
    table.createOrReplaceTempView(name)
    print(f"{name}: {table.count()} rows, {', '.join(table.columns)}")


def by_function(query):
    return {row[0]: row[1] for row in spark.sql(query).collect()}


# The queries of docs/exports.md, for all functions.
own = by_function("""
    SELECT function, sum(weight) FROM samples JOIN stacks USING (recording_id, stack_id)
    JOIN symbols ON symbols.recording_id = stacks.recording_id AND frame_id = leaf_frame_id AND symbols.depth = 0
    GROUP BY function
""")
total = by_function("""
    WITH frame_of AS (SELECT recording_id, stack_id, explode(frames) AS frame_id FROM stacks),
    function_of AS (
        SELECT DISTINCT recording_id, stack_id, function FROM frame_of JOIN symbols USING (recording_id, frame_id)
    )
    SELECT function, sum(weight) FROM samples JOIN function_of USING (recording_id, stack_id) GROUP BY function
""")
# Functions of one name are one to a query by name.
reported = collections.Counter()
for row in report["rows"]:
    reported[row["name"]] += row["self"]
assert own == {name: weight for name, weight in reported.items() if weight}, (own, reported)
names = collections.Counter(row["name"] for row in report["rows"])
for row in report["rows"]:
    assert total[row["name"]] == row["total"] or names[row["name"]] > 1, row
assert sum(own.values()) == report["total"]
print(f"Spark {spark.version}: {len(total)} functions as in the report")
