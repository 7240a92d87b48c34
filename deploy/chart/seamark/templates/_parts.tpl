{{- /* Labels of every object; the argument is a dict of root and, where it is one workload's, component. */ -}}
{{- define "seamark.labels" -}}
app.kubernetes.io/name: seamark
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/part-of: seamark
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Labels by which a workload finds its pods: they never change, because a selector cannot. */ -}}
{{- define "seamark.selector" -}}
app.kubernetes.io/name: seamark
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* Labels of pods: nothing that an upgrade of the chart alone would change, or every pod would be replaced for a label. */ -}}
{{- define "seamark.pod.labels" -}}
{{ include "seamark.selector" . }}
app.kubernetes.io/part-of: seamark
{{- end }}

{{- define "seamark.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default (.Chart.AppVersion | replace "+" "_")) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- /* What all pods have in common, of root and component. */ -}}
{{- define "seamark.pod" -}}
serviceAccountName: seamark-{{ .component }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
nodeSelector:
  kubernetes.io/os: linux
{{- end }}

{{- /* What the pods of Deployments have in common: the strictest security there is, and replicas apart from each other. */ -}}
{{- define "seamark.deployment.pod" -}}
{{ include "seamark.pod" . }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "seamark.selector" $ | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}

{{- define "seamark.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}
