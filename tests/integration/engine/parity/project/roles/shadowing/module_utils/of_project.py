WHO = "the role's"
