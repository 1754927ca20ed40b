"""Objects in the protobuf encoding of the Kubernetes API."""
