SHARED = "shared"
