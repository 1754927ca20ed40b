class TestModule:
    def tests(self):
        return {"of_kit": lambda value: str(value).startswith("kit(")}
