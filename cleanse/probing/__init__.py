"""The probe in a scan: which records are replayed through a model, how their figures are judged, what is kept."""
