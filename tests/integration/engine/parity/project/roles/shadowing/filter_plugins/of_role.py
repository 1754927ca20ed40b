class FilterModule:
    def filters(self):
        return {"of_role": lambda value: f"role filter of {value}", "of_project_filter": lambda value: "shadowed"}
