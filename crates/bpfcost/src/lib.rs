//! bpfcost: one pipeline, experiment → measure → record → report.
