{{/* Name of all objects: that of the release, and of the chart unless the former contains it. */}}
{{- define "sluicegate.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "sluicegate.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "sluicegate.selector" . }}
{{- end -}}

{{- define "sluicegate.selector" -}}
app.kubernetes.io/name: sluicegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluicegate.members" -}}
{{ include "sluicegate.selector" . }}
app.kubernetes.io/component: coordinator
{{- end -}}

{{- define "sluicegate.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "sluicegate.labels" . | nindent 2 }}
{{- end -}}

{{- define "sluicegate.settings" -}}
{{ required "settings is empty: give the text of sluicegate.toml, such as with --set-file settings=sluicegate.toml" .Values.settings | dict "sluicegate.toml" | toYaml }}
{{- end -}}

{{- define "sluicegate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "sluicegate.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "sluicegate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "sluicegate.container" -}}
image: {{ include "sluicegate.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- with .Values.secrets.environment }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end -}}

{{- define "sluicegate.mounts" -}}
- name: settings
  mountPath: /etc/sluicegate
  readOnly: true
{{- if .Values.secrets.files }}
- name: secrets
  mountPath: /run/secrets/sluicegate
  readOnly: true
{{- end }}
{{- end -}}

{{- define "sluicegate.secrets" -}}
{{- with .Values.secrets.files }}
- name: secrets
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{/* The topics exist before the members start, which end without them. */}}
{{- define "sluicegate.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
