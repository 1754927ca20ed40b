from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display

display = Display()
_state = []


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        _state.append(1)
        for term in terms:
            if term == "fail":
                raise AnsibleError("the lookup fails")
            if term == "crash":
                raise ValueError("the lookup crashes")
            if term == "warn":
                display.warning("the lookup warns")
            if term == "deprecate":
                display.deprecated("the lookup is old", version="9.9", collection_name="x.y")
            if term == "print":
                display.display("the lookup displays")
                display.v("the lookup tells at -v")
                display.vvv("the lookup tells at -vvv")
            if term == "variable":
                variables["changed_by_lookup"] = "yes"
        return [len(_state), *terms] if kwargs.get("state") else [f"{term} {self._templar is not None}" for term in terms]
