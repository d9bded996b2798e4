"""The jobs: each reads, transforms and writes. `iothub_spark.jobs.table` has one for each name of the catalogue."""
