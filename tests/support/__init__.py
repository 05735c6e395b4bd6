"""Fakes that more than one package's tests stand on."""
