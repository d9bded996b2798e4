"""The queue driver `hbase`, by the coprocessor, and what both drivers on HBase share: index, bodies, repeats."""
