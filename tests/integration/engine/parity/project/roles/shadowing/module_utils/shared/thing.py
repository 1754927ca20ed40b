THING = "shared thing"
