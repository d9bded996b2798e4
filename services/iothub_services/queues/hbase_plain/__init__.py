"""The queue driver `hbase-plain`: a log of batches, without a jar of ours."""
