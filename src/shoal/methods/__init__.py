"""Methods: how members learn from one another, one file for each. Importing them does not import JAX."""

from shoal.methods.cem_rl import CemRl
from shoal.methods.dvd import Dvd
from shoal.methods.es import Es
from shoal.methods.independent import Independent
from shoal.methods.method import Method
from shoal.methods.mf_pbt import MfPbt
from shoal.methods.pb2 import Pb2
from shoal.methods.pbt import Pbt
from shoal.methods.schedule import Schedule
from shoal.methods.successive_halving import SuccessiveHalving

METHODS: dict[str, type[Method]] = {"pbt": Pbt, "successive_halving": SuccessiveHalving, "mf_pbt": MfPbt, "pb2": Pb2}
METHODS |= {"es": Es, "cem_rl": CemRl, "dvd": Dvd, "independent": Independent, "schedule": Schedule}
