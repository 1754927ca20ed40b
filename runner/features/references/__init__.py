"""`references`: objects run when the Secrets, ConfigMaps and other objects change that their specs name."""
