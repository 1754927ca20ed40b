from ansible.plugins.vars import BaseVarsPlugin


class VarsModule(BaseVarsPlugin):
    REQUIRES_ENABLED = False

    def get_vars(self, loader, path, entities, cache=True):
        super().get_vars(loader, path, entities)
        return {"from_vars_plugin": sorted(entity.name for entity in entities)}
