package main

import "github.com/seamark-dev/seamark/api/v1alpha1"

// budgets are the limits that depend on the data plane. Times are multiples of the bare chain's.
type budgets struct {
	usable   float64 // p50 of export → usable
	atOnce   float64 // all usable, of hundreds of exports at once
	requests int     // API requests per export, all servers together
}

// budgetsOf has a row for each data plane that is measured. With service one more write has to be
// waited for.
var budgetsOf = map[v1alpha1.DataPlane]budgets{
	v1alpha1.DataPlaneNFTables: {usable: 2.5, atOnce: 3, requests: 11},
	v1alpha1.DataPlaneService:  {usable: 3.5, atOnce: 5, requests: 13},
}

// Limits of all data planes, as multiples of the bare chain's times.
const (
	budgetChange  = 2 // p50 of endpoint change → slice
	budgetGone    = 2 // p50 of unexport → gone
	budgetAllGone = 3 // all gone, of hundreds of unexports at once
)
