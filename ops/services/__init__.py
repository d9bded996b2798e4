"""Real servers for tests and for development: Kafka and HBase (with ZooKeeper and the Thrift gateway) on one Linux machine, without containers.

Knows no hub. Needs the standard library, a JDK and Maven. `python -m ops.services --help` is the command line.
"""
