class TestModule:
    def tests(self):
        return {"odd": lambda value: int(value) % 2 == 1}
