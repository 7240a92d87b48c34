package objects

import (
	"errors"
)

// ErrTaken is what the refusal of this cluster's id is.
var ErrClusterIDTaken = errors.New("the cluster id is used by another cluster")
