"""The pages of the dashboard, one in each file; `iothub.dashboard` says how one is made."""
