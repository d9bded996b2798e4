"""Shipped doubles: clocks, loopback pairs, packet cases, contract suites for every port."""
