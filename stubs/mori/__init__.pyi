from mori import cpp as cpp
from mori import io as io
