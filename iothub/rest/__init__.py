"""The REST API: a process of its own beside the hub, on FastAPI and uvicorn."""
