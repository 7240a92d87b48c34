package v1alpha1

// ClusterID identifies a member within its clusterset: one RFC-1123 label, or two joined by a dot.
// The second label distinguishes registries that use the same names. An id has at most 63
// characters, because it is also a label value.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="must be one RFC-1123 label (lower-case letters, digits and '-'), or two joined by a dot"
type ClusterID string

// CIDR is an address range in canonical form: 243.0.0.0/8, not 243.1.2.3/8.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be an address range such as 243.0.0.0/16 or fd00:243::/112"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).masked() == cidr(self)",message="must not have address bits set beyond its prefix length: write 243.1.0.0/16, not 243.1.2.3/16"
type CIDR string
