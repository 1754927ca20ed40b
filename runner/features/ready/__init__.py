"""`ready: dependents`: the condition `Ready` of an object follows the objects that its role created."""
