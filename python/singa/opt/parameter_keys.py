"""What an optimizer knows of each parameter: its key, its group, whether it is updated here."""

from __future__ import annotations

import fnmatch
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar

from ..layer import Layer
from ..tensor import Tensor
from .parameter_group import ParamGroup

_DEFAULT_GROUP = ParamGroup(())
#: Attributes of an optimizer that are dicts by the keys of parameters, besides slots.
_BY_KEY = ("_keys", "_accumulated_grads", "_behind", "_group_of", "unsent")


class ParameterKeys:
    """The part of an `Optimizer` that tells parameters apart. State lies in dicts by key, which are
    attributes of the optimizer."""

    #: What no step computes with; see `Layer.not_settings`.
    not_settings: ClassVar[tuple[str, ...]] = (
        *("_keys", "_key_of", "_owners", "_paths", "_group_of", "_behind", "_chosen"),
    )

    def __init__(self, groups: Iterable[ParamGroup]) -> None:
        self.groups = tuple(groups)
        # Where the formula depends on the number of updates of a parameter: the parameters that
        # have missed some, and how many.
        self._behind: dict[str, int] = {}
        self._chosen: Callable[[Tensor], bool] | None = None  # of update_only
        self._keys: dict[str, weakref.ref[Tensor]] = {}
        self._key_of: dict[int, str] = {}  # by the parameter's identity
        # The models that it was set on, and the paths of their parameters, by identity.
        self._owners: list[weakref.ref[Layer]] = []
        self._paths: dict[int, tuple[weakref.ref[Tensor], str]] = {}

    @property
    def groups(self) -> tuple[ParamGroup, ...]:
        """The parameter groups."""
        return self._groups

    @groups.setter
    def groups(self, groups: Iterable[ParamGroup]) -> None:
        given = tuple(groups)
        for group in given:
            if not isinstance(group, ParamGroup):
                kind = type(self).__name__
                raise TypeError(f"[{kind}] groups must be ParamGroups, got {group!r:.80}")
        self._groups = given
        self._group_of: dict[str, ParamGroup] = {}

    #: Whether an update of what no model has is a warning.
    _trains_others = False

    def _group(self, key: str, param: Tensor) -> ParamGroup:
        if not self.groups:
            return _DEFAULT_GROUP
        if key not in self._group_of:
            if not self._group_of:
                self._check_groups()
            name = self._path(param) or param.name or ""
            matching = (group for group in self.groups if group.matches(name, param))
            self._group_of[key] = next(matching, _DEFAULT_GROUP)
        return self._group_of[key]

    def _check_groups(self) -> None:
        """Raises ValueError if a name in a group is that of no parameter in the models that the
        optimizer was set on. Layers that have not made their parameters may have any."""
        models = self._living_owners()
        parts = [part for model in models for _, part in model.named_layers()]
        if not models or any([part._is_late() for part in parts]):
            return
        names = [name for name, _ in self._find_paths(models)]
        for pattern in [each for group in self.groups for each in group._patterns()]:
            if not any([fnmatch.fnmatchcase(name, pattern) for name in names]):
                titles = " and ".join([model.title for model in models])
                raise ValueError(
                    f"[{type(self).__name__}] a ParamGroup names {pattern!r}, and no parameter of "
                    f"{titles} matches it: there are {', '.join(names):.200}"
                )

    def state_key(self, param: Tensor) -> str:
        """The name under which a parameter's state is kept, which it keeps whatever becomes of its
        layer.

        It is the path in the model that the optimizer was set on, else the parameter's own name.
        Layers outside a model all call their weight "W": while such a namesake is alive, the later
        parameter goes under "W#2". Where the namesake is gone, so is its state.

        Raises ValueError for a parameter that such a model does not have; with SINGA's behaviour
        (`singa.compat`) it warns instead.
        """
        key = self._key_of.get(id(param))
        if key is not None:
            holder = self._keys.get(key)
            if holder is not None and holder() is param:
                return key
        return self._new_key(param)

    def set_on(self, model: Layer) -> None:
        """Makes the first update of each parameter check that `model` has it, or another model that
        the optimizer was set on. `Model.set_optimizer` calls it."""
        made = "_owners" in vars(self)  # not in the midst of a copy of both
        if made and all([model is not other for other in self._living_owners()]):
            self._owners.append(weakref.ref(model))

    def trained_parameters(self) -> list[Tensor]:
        """The parameters that train, of all models that the optimizer was set on."""
        found = self._find_paths(self._living_owners())
        return [param for _, param in found if param.stores_grad]

    def _present_parameters(self) -> dict[str, Tensor]:
        """The parameters by key. Where the optimizer was set on models, only those that they have
        now: a layer that was replaced may still be alive."""
        living = {key: param for key, ref in self._keys.items() if (param := ref()) is not None}
        models = self._living_owners()
        if not models or self._trains_others:
            return living
        self._find_paths(models)
        return {key: param for key, param in living.items() if self._path(param) is not None}

    def update_only(self, chosen: Callable[[Tensor], bool]) -> None:
        """From now on, updates only the parameters for which `chosen` is true, and drops and keeps
        no state of others, which other ranks update (`DistOpt(shard_state=True)`). All gradients
        count for clipping and loss scaling."""
        self._chosen = chosen
        for key, holder in self._keys.items():
            if not self._is_chosen(holder()):
                self._drop_states(key)

    def _is_chosen(self, param: Tensor | None) -> bool:
        return self._chosen is None or param is None or self._chosen(param)

    def _drop_states(self, key: str) -> None:
        """Drops what is kept for a parameter from update to update."""
        self._behind.pop(key, None)
        slots = {n: v for n, v in vars(self).items() if n not in (*_BY_KEY, "_value_tensors")}
        for value in slots.values():
            if isinstance(value, dict) and isinstance(value.get(key), Tensor):
                del value[key]

    def _new_key(self, param: Tensor) -> str:
        path = self._checked_path(param)
        if param.name is None:
            param.name = path or f"param{len(self._keys)}"
        key = self._free_key(path or param.name)
        self._keys[key] = weakref.ref(param)
        self._key_of[id(param)] = key
        return key

    def _free_key(self, name: str, count: int = 1) -> str:
        """The first of the keys name, name#2, name#3, ... that no living parameter has, from number
        `count` on. What is kept for a dead one is dropped."""
        key = name if count == 1 else f"{name}#{count}"
        while (holder := self._keys.get(key)) is not None:
            if holder() is None:
                self._take_out(key)
                break
            count += 1
            key = f"{name}#{count}"
        return key

    def _checked_path(self, param: Tensor) -> str | None:
        """The path of a parameter in the models; None where there is no model."""
        path = self._path(param)
        if path is None and (models := self._living_owners()):
            self._find_paths(models)
            path = self._path(param)
            if path is None:
                self._refuse(param, models)
        return path

    def _living_owners(self) -> list[Layer]:
        self._owners = [holder for holder in self._owners if holder() is not None]
        return [model for holder in self._owners if (model := holder()) is not None]

    def _find_paths(self, models: Sequence[Layer]) -> list[tuple[str, Tensor]]:
        """Notes where the models have their parameters, and returns that."""
        found: dict[int, tuple[str, Tensor]] = {}
        for model in models:
            for path, param in model.get_params().items():
                found.setdefault(id(param), (path, param))
        self._paths = {i: (weakref.ref(param), path) for i, (path, param) in found.items()}
        return list(found.values())

    def _path(self, param: Tensor | None) -> str | None:
        holder, path = self._paths.get(id(param), (None, None))
        return path if holder is not None and holder() is param else None

    def _refuse(self, param: Tensor, models: Sequence[Layer]) -> None:
        titles = " and ".join([model.title for model in models])
        message = (
            f"[{type(self).__name__}] the loss depends on {param.name or 'a tensor'} of shape "
            f"{param.shape}, which is not in get_params() of {titles}: it would be trained, but "
            "not saved, frozen or averaged. Make it, or its layer, an attribute of the model, or "
            "an item of a list, tuple or dict there. If another optimizer trains it, freeze it now"
        )
        if not self._trains_others:
            raise ValueError(message)
        warnings.warn(message, stacklevel=2)

    def _use_paths(self) -> None:
        """Makes the paths in the models the keys of their parameters. A parameter that is no longer
        in a model loses a key that is a path, and its state if it is gone."""
        models = self._living_owners()
        found = self._find_paths(models)
        keys = {id(holder()): key for key, holder in self._keys.items()}
        ours = []
        for path, param in found:
            key = keys.get(id(param))
            if key is not None and key != path:
                ours.append((path, param, self._take_out(key)))
        for path in [path for model in models for path in model.get_states()]:
            holder = self._keys.get(path)
            if holder is None or self._path(other := holder()) == path:
                continue
            entries = self._take_out(path)
            if other is not None:
                self._put(self._free_key(path, 2), other, entries)
        for path, param, entries in ours:
            self._put(self._free_key(path), param, entries)

    def _put(self, key: str, param: Tensor, entries: list[tuple[str, Any]]) -> None:
        """Puts what `_take_out` returned under another key."""
        self._key_of[id(param)] = key
        for name, value in entries:
            vars(self)[name][key] = value

    def _take_out(self, key: str) -> list[tuple[str, Any]]:
        """Removes the entries of a parameter from the dicts by key, and from dicts of tensors of
        subclasses, a user's too. Returns them with the names of the dicts."""
        dicts = {name: value for name, value in vars(self).items() if isinstance(value, dict)}
        dicts.pop("_value_tensors", None)
        holding = [
            (name, value)
            for name, value in dicts.items()
            if key in value and (name in _BY_KEY or isinstance(value[key], Tensor))
        ]
        return [(name, value.pop(key)) for name, value in holding]

    def _keeps(self, key: str) -> bool:
        holder = self._keys.get(key)
        return holder is None or self._is_chosen(holder())

    def _check_names(self, keys: Collection[str]) -> None:
        """Raises ValueError if the optimizer was set on a model, and no key of a state is that of a
        parameter that it knows."""
        paths = {path for path, _ in self._find_paths(self._living_owners())}
        living = {key for key, holder in self._keys.items() if holder() is not None}
        if keys and paths and (paths | living).isdisjoint(keys):
            raise ValueError(
                f"[{type(self).__name__}] the state is of other parameters: it has "
                f"{', '.join(sorted(keys)):.200}, and the model {', '.join(sorted(paths)):.200}"
            )


def members_of_groups(optimizer: ParameterKeys) -> str:
    """The settings of each parameter group, and the parameters that train with them, one group a
    line: what ranks compare."""
    groups = optimizer.groups
    members: dict[int, list[str]] = {id(group): [] for group in groups}
    for param in optimizer.trained_parameters() if groups else ():
        key = optimizer.state_key(param)
        if (group := id(optimizer._group(key, param))) in members:
            members[group].append(key)
    return "\n".join(
        [
            f"weight_decay {group.weight_decay}, lr_scale {group.lr_scale}: "
            f"{', '.join(members[id(group)])}"
            for group in groups
        ]
    )
