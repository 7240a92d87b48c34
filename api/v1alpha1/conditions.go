package v1alpha1

import (
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Reasons of Valid=False on a ServiceExport, beside those of the MCS API.
const (
	// ServiceExportReasonNamespaceNotAllowed means that the broker's admin does not allow this
	// cluster to export from the namespace.
	ServiceExportReasonNamespaceNotAllowed mcsv1beta1.ServiceExportConditionReason = "NamespaceNotAllowed"
)

// ServiceExportReasonLimitExceeded is a reason of Valid=False on a ServiceExport: the cluster
// exports more than the broker's admin allows it, and this is not among its oldest exports.
const ServiceExportReasonLimitExceeded mcsv1beta1.ServiceExportConditionReason = "LimitExceeded"

// Reasons of Ready=False on a ServiceExport, beside those of the MCS API.
const (
	// ServiceExportReasonClusterIDTaken means that another cluster uses this cluster's id, so
	// nothing is published.
	ServiceExportReasonClusterIDTaken mcsv1beta1.ServiceExportConditionReason = "ClusterIDTaken"
	// ServiceExportReasonNoClusterSetIPLeft means that the service is published, but the exporters'
	// blocks have no free clusterset IP for it.
	ServiceExportReasonNoClusterSetIPLeft mcsv1beta1.ServiceExportConditionReason = "NoClusterSetIPLeft"
	// ServiceExportReasonRefusedByBroker means that the broker's API server rejected what this
	// cluster publishes. Retrying does not help until the cause is removed.
	ServiceExportReasonRefusedByBroker mcsv1beta1.ServiceExportConditionReason = "RefusedByBroker"
	// ServiceExportReasonWaitingForBroker means that the broker could not be reached. The agent
	// retries until it can.
	ServiceExportReasonWaitingForBroker mcsv1beta1.ServiceExportConditionReason = "WaitingForBroker"
	// ServiceExportReasonNotMember means that the cluster left its clusterset.
	ServiceExportReasonNotMember mcsv1beta1.ServiceExportConditionReason = "NotMember"
	// ServiceExportReasonWithdrawalHeld means that the Service is gone together with most others,
	// and the agent saw no user delete it. What was published stays for a while.
	ServiceExportReasonWithdrawalHeld mcsv1beta1.ServiceExportConditionReason = "WithdrawalHeld"
)

// ServiceExportConditionStalled is a condition of a ServiceExport that is present only while it is
// True: the service is not exported, and will not be before a user does something about it. Its
// reason and message are those of Valid or Ready. Tools that judge objects with kstatus take such
// an export for failed, and any other that is not ready for one in progress.
const ServiceExportConditionStalled mcsv1beta1.ServiceExportConditionType = "Stalled"

// ServiceExportReasonClusterSetIPConflict is a reason of Conflict=True on a ServiceExport: the
// exporting clusters disagree about whether the service has a clusterset IP.
const ServiceExportReasonClusterSetIPConflict mcsv1beta1.ServiceExportConditionReason = "ClusterSetIPConflict"

// Reasons of Ready=False on a ServiceImport, beside those of the MCS API.
const (
	// ServiceImportReasonClusterSetIPRejected means that the clusterset IP on the broker lies
	// outside the clusterset's ranges, or belongs to another service.
	ServiceImportReasonClusterSetIPRejected mcsv1beta1.ServiceImportConditionReason = "ClusterSetIPRejected"
	// ServiceImportReasonDerivedServiceForeign means that a Service with the name of the derived
	// Service exists and is not managed by Seamark.
	ServiceImportReasonDerivedServiceForeign mcsv1beta1.ServiceImportConditionReason = "DerivedServiceForeign"
	// ServiceImportReasonDerivedServiceRefused means that this cluster's API server rejected the
	// derived Service.
	ServiceImportReasonDerivedServiceRefused mcsv1beta1.ServiceImportConditionReason = "DerivedServiceRefused"
)

// Conditions of a ServiceImport, beside those of the MCS API. Each is present only while it is
// True: a service can be ready and have stale endpoints and refused addresses at the same time.
const (
	// ServiceImportConditionStaleEndpointsKept means that the only clusters that serve a port are
	// stale or cannot be reached, so their last known endpoints are kept.
	ServiceImportConditionStaleEndpointsKept mcsv1beta1.ServiceImportConditionType = "StaleEndpointsKept"
	// ServiceImportConditionAddressesRefused means that some endpoints were not imported because
	// of their addresses. The message names them.
	ServiceImportConditionAddressesRefused mcsv1beta1.ServiceImportConditionType = "AddressesRefused"
	// ServiceImportConditionWithdrawalHeld means that the service disappeared from its exporter or
	// from the broker, together with most services of that cluster. Nothing shows that this is
	// meant, so the import is kept for a while.
	ServiceImportConditionWithdrawalHeld mcsv1beta1.ServiceImportConditionType = "WithdrawalHeld"
	// ServiceImportConditionStalled means that the service cannot be used in this cluster, and that
	// waiting does not help. Its reason and message are those of Ready. As for a ServiceExport,
	// kstatus takes such an import for failed.
	ServiceImportConditionStalled mcsv1beta1.ServiceImportConditionType = "Stalled"
)

// Reasons of these conditions.
const (
	// ServiceImportReasonNoOtherCluster is the reason of StaleEndpointsKept.
	ServiceImportReasonNoOtherCluster mcsv1beta1.ServiceImportConditionReason = "NoOtherCluster"
	// ServiceImportReasonAddressNotAllowed is the reason of AddressesRefused.
	ServiceImportReasonAddressNotAllowed mcsv1beta1.ServiceImportConditionReason = "AddressNotAllowed"
	// ServiceImportReasonHeldByExporter is the reason of WithdrawalHeld while the exporter itself
	// keeps what it published.
	ServiceImportReasonHeldByExporter mcsv1beta1.ServiceImportConditionReason = "HeldByExporter"
	// ServiceImportReasonRecordsLost is the reason of WithdrawalHeld while the broker lacks the
	// records of a cluster, and this cluster saw no deletion.
	ServiceImportReasonRecordsLost mcsv1beta1.ServiceImportConditionReason = "RecordsLost"
)
