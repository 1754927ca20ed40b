class FilterModule:
    def filters(self):
        return {"of_kit": lambda value, suffix="": f"kit({value}){suffix}"}
